package backup

import (
	"encoding/json"
	"os"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Attempt is the last time that this machine tried to make a backup.
type Attempt struct {
	Time  time.Time `json:"time"`            // zero if it has not ended
	Error string    `json:"error,omitempty"` // "" if all is well
	Copy  Copy      `json:"copy,omitzero"`
	File  string    `json:"file,omitempty"` // of the copy
	// Begun is when another one began that has not ended, or was killed.
	Begun time.Time `json:"begun,omitzero"`
}

// Note writes the attempt into a file, in place of the one before.
func (a Attempt) Note(file string) error {
	return writeNote(file, a)
}

func writeNote(file string, about any) error {
	text, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'), 0o600)
}

// LastAttempt returns the attempt in a file, nil if there was none or its note cannot be read.
func LastAttempt(file string) *Attempt {
	var a Attempt
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return nil
	}
	return &a
}

// Text describes the attempt to people.
func (a Attempt) Text() string {
	switch {
	case a.Error != "":
		return "FAILED: " + a.Error
	case a.File == "":
		return "the first one is being made, or was killed"
	case a.Copy.Bucket != "":
		return a.File + ", and in " + a.Copy.Bucket
	}
	return a.File
}
