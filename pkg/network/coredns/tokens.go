package coredns

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a word of a Corefile with its position.
type token struct {
	text       string
	start, end int  // byte offsets, with the quotes if there are any
	line       int  // from 1
	first      bool // whether it is the first of its line
}

// tokens splits a Corefile as Caddy does: words separated by space, "quoted words", # to the end of the line.
func tokens(text string) []token {
	var out []token
	line := 1
	lastLine := 0 // of the end of the previous token
	for i := 0; i < len(text); {
		switch ch, size := utf8.DecodeRuneInString(text[i:]); {
		case ch == '\n':
			line++
			i++
		case ch == '#':
			i += lineLength(text[i:])
		case unicode.IsSpace(ch):
			i += size
		default:
			word, n := nextWord(text[i:])
			out = append(out, token{text: word, start: i, end: i + n, line: line, first: line != lastLine})
			line += strings.Count(text[i:i+n], "\n")
			lastLine = line
			i += n
		}
	}
	return out
}

// nextWord returns the word at the beginning of text, unquoted, and its length in text.
func nextWord(text string) (word string, length int) {
	if text[0] == '"' {
		for i := 1; i < len(text); i++ {
			if text[i] == '\\' {
				i++
			} else if text[i] == '"' {
				return strings.ReplaceAll(text[1:i], `\"`, `"`), i + 1
			}
		}
		return text[1:], len(text)
	}
	end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '#' })
	if end < 0 {
		end = len(text)
	}
	return text[:end], end
}

func lineLength(text string) int {
	if n := strings.IndexByte(text, '\n'); n >= 0 {
		return n
	}
	return len(text)
}
