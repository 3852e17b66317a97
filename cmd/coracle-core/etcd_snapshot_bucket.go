package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/backup/bucket"
)

// ownKeys returns the keys that this server's backups are encrypted with: the recipients', or the token that it keeps. One that has joined
// with a token that the cluster made keeps none.
func (s saving) ownKeys() (backup.Keys, error) {
	keys := backup.Keys{Recipients: s.settings.Recipients}
	text, err := os.ReadFile(s.dirs.Token()) // as package join has written it
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return keys, err
	}
	keys.Password = strings.TrimSpace(string(text))
	return keys, nil
}

// openingKeys returns the keys with which backups can be opened: those in the files, or else the token that servers here are started with.
func (i installation) openingKeys(files openFlags) (backup.Keys, error) {
	keys := backup.Keys{Identity: files.identity}
	next := config.Next(os.Environ()).Join // on a new machine, what its configuration says
	read := func(t join.Token, err error) (backup.Keys, error) {
		keys.Password = t.Bearer()
		return keys, err
	}
	switch _, err := os.Stat(i.dirs.Token()); {
	case files.token != "":
		return read(join.ReadToken(files.token))
	case err == nil:
		return read(join.ReadToken(i.dirs.Token()))
	case next.TokenFile != "":
		return read(join.ReadToken(next.TokenFile))
	case next.Token != "":
		return read(join.ParseToken(next.Token))
	}
	return keys, nil
}

// bucket returns the bucket of the settings, and the settings with what a Secret adds to them.
func (i installation) bucket(ctx context.Context, s config.Snapshots) (*bucket.Bucket, config.Snapshots, error) {
	if name := s.S3.ConfigSecret; name != "" {
		a, err := i.administer()
		if err != nil {
			return nil, s, fmt.Errorf("reading --etcd-s3-config-secret: %w", err)
		}
		secret, err := a.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, s, explain(fmt.Errorf("reading --etcd-s3-config-secret: %w", err))
		}
		if s, err = s.WithSecret(secret.Data); err != nil {
			return nil, s, err
		}
	}
	if s.S3.HasKeys && s.S3.AccessKey == "" {
		return nil, s, errors.New("the server was started with the credentials of the bucket as flags or variables, which commands do not see: " +
			"write etcd-s3-access-key and etcd-s3-secret-key into the configuration file, or give them to this command too")
	}
	b, err := bucket.Open(s.S3)
	return b, s, err
}

// errOpen is why a bucket gets no backups that anyone can read.
var errOpen = errors.New("a backup in a bucket must be encrypted, because it has all secrets of the cluster: give --etcd-snapshot-recipient with a public " +
	"key, as age-keygen or ssh-keygen makes them. Without, it is encrypted with a server token that people have chosen, and this server has none")

// checkBucket fails if the settings are for a bucket that could not be used.
func (s saving) checkBucket(keys backup.Keys) error {
	switch {
	case !s.settings.S3.On || s.file != "":
		return nil
	case keys.Readers() == backup.ForAll:
		return errOpen
	case s.settings.S3.ConfigSecret == "" && s.settings.S3.Bucket == "":
		return errors.New("--etcd-s3 needs the name of the bucket: add --etcd-s3-bucket")
	}
	return nil
}

// upload puts a backup into the bucket, if there is one.
func (s saving) upload(ctx context.Context, made *backup.Copy, keys backup.Keys) error {
	if !s.settings.S3.On || s.file != "" {
		return nil
	}
	b, _, err := s.bucket(ctx, s.settings)
	var sent bucket.Sent
	if err == nil {
		sent, err = s.send(ctx, b, *made, keys)
	}
	if err != nil {
		made.BucketError = err.Error()
		return fmt.Errorf("%s is written and tried, but not in the bucket: %w", made.File, err)
	}
	made.Bucket, made.Sent = b.String(), sent.Bytes
	return nil
}

func (s saving) send(ctx context.Context, b *bucket.Bucket, made backup.Copy, keys backup.Keys) (sent bucket.Sent, err error) {
	seals, err := pki.SealKeys(s.dirs, pki.SealPieces)
	if err != nil {
		return sent, err
	}
	content, err := backup.Content(made.File, keys)
	if err != nil {
		return sent, err
	}
	defer content.Close()
	if s.scheduled {
		var end func()
		b.Limit, end = throttle.New(uploadRate)
		defer end()
	}
	return b.Put(ctx, made.Summary, bucket.PieceKey(seals[0].Key), keys, content)
}

// prune removes former backups that are not worth keeping, after one was made by schedule: here if that is good, and in the bucket if it is there.
func (s saving) prune(ctx context.Context, made backup.Copy) error {
	if !s.scheduled || made.Tried.IsZero() {
		return nil
	}
	if _, err := s.pruneHere(); err != nil || made.Bucket == "" {
		return err
	}
	_, err := s.pruneBucket(ctx)
	return err
}

// pruneHere removes what is not worth keeping of a series in the directory, and returns what it was.
func (s saving) pruneHere() (gone []string, err error) {
	all, err := backup.Copies(s.settings.Dir)
	if err != nil {
		return nil, err
	}
	for _, c := range backup.Surplus(s.series, all, backup.Copy.About, s.settings.Retention) {
		if err := c.Remove(); err != nil {
			return gone, err
		}
		gone = append(gone, c.File)
	}
	return gone, nil
}

// pruneBucket does that in the bucket. By hand, it also removes pieces that a killed command has left.
func (s saving) pruneBucket(ctx context.Context) (gone []string, err error) {
	b, settings, err := s.bucket(ctx, s.settings)
	if err != nil {
		return nil, err
	}
	there, err := b.List(ctx, s.series)
	if err != nil {
		return nil, err
	}
	surplus := backup.Surplus(s.series, there, bucket.Index.About, settings.S3.Retention)
	for _, x := range surplus {
		gone = append(gone, b.Location(x))
	}
	if len(surplus) == 0 && s.scheduled {
		return nil, nil
	}
	return gone, b.Delete(ctx, s.series, surplus)
}
