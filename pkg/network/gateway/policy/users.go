package policy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // as htpasswd -s has it
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// users are those who may come in with a password.
type users struct {
	hashes  map[string]string
	unknown string // the hash that stands for users whom there are not, so that an answer for them takes as long
	turns   turns
	waiting atomic.Int32 // for a turn

	mu         sync.Mutex
	key        []byte
	young, old map[[sha256.Size]byte]bool // who was let in: a hash such as bcrypt's takes long for each request
}

// turns bound the passwords that are compared at a time, of all policies: that takes CPU from the requests of others.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

const (
	// maxRemembered is how many passwords are remembered as right in each of two halves, the older of which is forgotten when the other is full.
	maxRemembered = 1024
	// maxWaiting and waitTime bound how many requests of a policy wait for others' passwords to be compared, and how long.
	maxWaiting = 8
	waitTime   = 5 * time.Second
	// maxPassword is the length in bytes of the longest name or password.
	maxPassword = 1024
)

func newUsers(hashes map[string]string, t turns, before *users) *users {
	if before != nil && maps.Equal(before.hashes, hashes) {
		return before
	}
	u := &users{hashes: hashes, turns: t, key: make([]byte, 32), young: map[[sha256.Size]byte]bool{}}
	_, _ = rand.Read(u.key) // it does not fail
	for _, hash := range hashes {
		if u.unknown == "" || hash < u.unknown { // bcrypt's are before the others
			u.unknown = hash
		}
	}
	return u
}

// admit returns the answer to a request without a right password.
func (u *users) admit(req *http.Request) *Answer {
	name, password, ok := req.BasicAuth()
	if !ok || len(name) > maxPassword || len(password) > maxPassword {
		return refuse(http.StatusUnauthorized, "a name and a password are needed\n")
	}
	known := u.digest(name, password)
	if u.remembered(known) {
		return nil
	}
	if u.waiting.Add(1) > maxWaiting {
		u.waiting.Add(-1)
		return busy()
	}
	defer u.waiting.Add(-1)
	timer := time.NewTimer(waitTime)
	defer timer.Stop()
	select {
	case u.turns <- struct{}{}:
		defer func() { <-u.turns }()
	case <-timer.C:
		return busy()
	case <-req.Context().Done():
		return busy()
	}
	if !u.right(name, password) {
		return refuse(http.StatusUnauthorized, "the name or the password is wrong\n")
	}
	u.remember(known)
	return nil
}

func busy() *Answer {
	a := refuse(http.StatusServiceUnavailable, "too many passwords are being tried\n")
	a.Header.Set("Retry-After", "1")
	return a
}

func (u *users) right(name, password string) bool {
	hash, known := u.hashes[name]
	if !known {
		hash = u.unknown
	}
	return Matches(hash, password) && known
}

// digest is what is remembered of a name and a password. Who reads the memory does not get the password from it without the key.
func (u *users) digest(name, password string) [sha256.Size]byte {
	return sha256.Sum256(bytes.Join([][]byte{u.key, []byte(base64.StdEncoding.EncodeToString([]byte(name))), []byte(password)}, []byte{0}))
}

func (u *users) remembered(d [sha256.Size]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.young[d] || u.old[d]
}

func (u *users) remember(d [sha256.Size]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.young) >= maxRemembered {
		u.young, u.old = map[[sha256.Size]byte]bool{}, u.young
	}
	u.young[d] = true
}

// Matches reports whether a password is that of a hash of htpasswd. The time that it takes says nothing about the password.
func Matches(hash, password string) bool {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	switch {
	case strings.HasPrefix(hash, "$2"):
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	case strings.HasPrefix(hash, apr1):
		salt, _, _ := strings.Cut(hash[len(apr1):], "$")
		return equal(hash, md5Crypt(password, salt))
	case strings.HasPrefix(hash, "{SHA}"):
		sum := sha1.Sum([]byte(password)) //nolint:gosec // see above
		return equal(hash[len("{SHA}"):], base64.StdEncoding.EncodeToString(sum[:]))
	case strings.HasPrefix(hash, "{SSHA}"):
		salted, err := base64.StdEncoding.DecodeString(hash[len("{SSHA}"):])
		if err != nil || len(salted) < sha1.Size {
			return false
		}
		sum := sha1.Sum(append([]byte(password), salted[sha1.Size:]...)) //nolint:gosec // see above
		return equal(string(salted[:sha1.Size]), string(sum[:]))
	}
	return false
}
