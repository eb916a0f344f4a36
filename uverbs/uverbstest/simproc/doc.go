// Package simproc serves ConnectX devices in software to other processes: programs that
// were not written for it, in C or in Go, open /dev/infiniband/uverbs0 and find the
// devices of a model there. Nothing is preloaded, and no privileges are needed.
//
//	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
//	s, err := simproc.Serve(m, nil)
//	defer s.Close()
//	server := s.Command("ibv_rc_pingpong")
//	server.Stdout = os.Stdout
//	err = server.Start()
//	client := s.Command("ibv_rc_pingpong", "localhost")
//	err = client.Run()
//	err = server.Wait()
//
// A program is started with a seccomp filter, which hands the one ioctl of RDMA to this
// process. The answer comes from the model; the registers that a program maps are memory
// that both share, at which a thread here looks for doorbells; requests, data
// and completions are read and written in the program's memory. Processes that a program
// starts are served too. When it ends, those of them that are left are killed.
//
// # Two forms
//
// By default a program runs in a mount namespace of its own, where /dev/infiniband and
// the folders of /sys/class are those of the model. Only that ioctl and fstat are slower than
// they were. Who is not root gets a user namespace for it, if the system lets them.
// With [Options.NoMount] nothing is mounted: opening, reading links and asking for the
// state of absolute paths is handed over too, and those of RDMA lead to a folder that is removed
// at the end. A program that goes there relative to an open folder, or with another
// system call than the usual ones, sees the machine's own.
//
// What /sys says is as of the start of a program; what is asked of the device itself is
// current.
//
// # What is not the same
//
// A device that fails ends its event files: reading them finds the end and not EIO. A
// child process cannot use a device that its parent opened: its requests fail with EIO.
// Words of four and eight bytes that a peer writes may come in pieces, which a
// card does not do.
//
// # Concurrency
//
// A [Server] may be used from any goroutine. It has one thread of its own, which looks
// for doorbells: all the time while there is traffic and processors are free, otherwise
// less and less often, down to 200 times a second; when no device is open, or [Server.Rest]
// says so, it sleeps. For each program there are three goroutines until it has ended. A
// [Cmd] belongs to one goroutine; Signal and Kill may be called from others.
//
// When this process dies, however that comes, the programs are killed: each has a keeper, a
// second process of this executable, that sees to it. It is started by an init function of
// this package, which takes the process over when argument zero says so.
//
// # Errors
//
// [Serve] fails, wrapping [errors.ErrUnsupported], where the system cannot do it: it
// takes Linux 5.19 or later on amd64 or arm64. [Cmd.Start] says which namespace or
// mount was refused. [Cmd.Wait] returns [*ExitError] for a program that failed.
package simproc
