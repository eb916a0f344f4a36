package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A version is that of a kernel of kernel.org: 6.1.20.
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor), cmp.Compare(v.patch, w.patch))
}

// The patterns are made when they are used, and not when a program starts.

var versionStart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`)
})

// parseVersion reads the beginning of a text such as 6.1.20-rc1.
func parseVersion(s string) (v version, rest string, ok bool) {
	m := versionStart().FindStringSubmatch(s)
	if m == nil {
		return version{}, "", false
	}
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		if m[i+1] != "" {
			*p, _ = strconv.Atoi(m[i+1]) // four digits at most
		}
	}
	return v, s[len(m[0]):], true
}

// stableVersion finds out which version of kernel.org the kernel is made from. Its release
// does not always tell: distributions count their own changes in it. ok is false where
// nobody tells, as with RHEL and SLES, whose kernels are no version of kernel.org.
func (n *Node) stableVersion() (v version, from string, ok bool) {
	// Ubuntu: Ubuntu 5.15.0-91.101-generic 5.15.131
	if s, err := n.line("proc/version_signature"); err == nil {
		if i := strings.LastIndexByte(s, ' '); i >= 0 && strings.HasPrefix(s, "Ubuntu ") {
			if v, rest, ok := parseVersion(s[i+1:]); ok && rest == "" {
				return v, fmt.Sprintf("/proc/version_signature is %q", s), true
			}
		}
	}
	if s, err := n.line("proc/version"); err == nil {
		if m := regexp.MustCompile(` Debian (\d{1,4}\.\d{1,4}\.\d{1,4})-\d`).FindStringSubmatch(s); m != nil {
			v, _, ok := parseVersion(m[1])
			return v, "/proc/version says Debian " + m[1], ok
		}
	}
	v, rest, ok := parseVersion(n.Release)
	from = "uname -r is " + n.Release
	switch {
	case !ok, regexp.MustCompile(vendorKernel).MatchString(rest):
		return version{}, "", false
	case v.patch == 0 && rest != "" && !strings.HasPrefix(rest, "-rc"):
		// Debian, Ubuntu and others put 0 there and a number of their own behind it.
		return version{}, "", false
	}
	return v, from, true
}

// vendorKernel matches what vendors who backport put into releases.
const vendorKernel = `\.el\d|el\duek|-default$|\.oe\d|\.an\d|\.tl\d`
