// Package tied starts programs that do not outlive the process that starts them: however it
// ends, by kill -9 too, they are killed.
//
// What they have started themselves is not, unless they see to it. Nor is a program tied that
// takes another user's rights or capabilities from its file, and on other systems than Linux
// none is.
//
// Several goroutines may start programs at a time.
package tied

import "os/exec"

// Run is cmd.Run for a program that is tied to this process.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
