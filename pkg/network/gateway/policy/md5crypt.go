package policy

import (
	"crypto/md5" //nolint:gosec // as htpasswd -m has it
	"strings"
)

// apr1 is how the hashes of htpasswd -m begin.
const apr1 = "$apr1$"

// md5Crypt is Apache's variant of the MD5 crypt of FreeBSD: 1000 rounds of MD5 of the password, the salt and the sum before.
func md5Crypt(password, salt string) string {
	salt = salt[:min(len(salt), 8)]
	sum := func(parts ...string) string {
		s := md5.Sum([]byte(strings.Join(parts, ""))) //nolint:gosec // see above
		return string(s[:])
	}
	inner := sum(password, salt, password)
	var start strings.Builder
	start.WriteString(password + apr1 + salt)
	for n := len(password); n > 0; n -= md5.Size {
		start.WriteString(inner[:min(n, md5.Size)])
	}
	for n := len(password); n > 0; n >>= 1 {
		if n&1 == 1 {
			start.WriteByte(0)
		} else {
			start.WriteByte(password[0])
		}
	}
	now := sum(start.String())
	pick := func(yes bool, text string) string {
		if yes {
			return text
		}
		return ""
	}
	for i := range 1000 {
		first, last := now, password
		if i&1 == 1 {
			first, last = password, now
		}
		now = sum(first, pick(i%3 != 0, salt), pick(i%7 != 0, password), last)
	}
	return apr1 + salt + "$" + encode(now)
}

// encode writes a sum in the order and with the characters of crypt.
func encode(sum string) string {
	const characters = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var out strings.Builder
	write := func(v, n int) {
		for range n {
			out.WriteByte(characters[v&0x3f])
			v >>= 6
		}
	}
	for _, at := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		write(int(sum[at[0]])<<16|int(sum[at[1]])<<8|int(sum[at[2]]), 4)
	}
	write(int(sum[11]), 2)
	return out.String()
}
