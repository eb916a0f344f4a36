package tty

// Erase takes the line of [Line] away.
const Erase = "\r\x1b[K"

// Line shows a text in the place of the line that is there. What does not fit into the terminal
// is cut off: a second line would stay for good.
func Line(text string) string { return Erase + "\x1b[?7l" + text + "\x1b[?7h" }
