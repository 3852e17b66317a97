package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/backup/bucket"
)

// backupKeys returns the keys of backups: those in the files, or else the token that servers here are started with.
func (i installation) backupKeys(tokenFile, identity string) (backup.Keys, error) {
	keys := backup.Keys{Identity: identity}
	if tokenFile != "" {
		t, err := join.ReadToken(tokenFile)
		keys.Password = t.Bearer()
		return keys, err
	}
	if text, err := os.ReadFile(i.dirs.Token()); err == nil { // as package join has written it
		keys.Password = strings.TrimSpace(string(text))
		return keys, nil
	}
	// On a new machine, what its configuration says.
	next := config.Next(os.Environ()).Join
	if next.Token != "" {
		t, err := join.ParseToken(next.Token)
		keys.Password = t.Bearer()
		return keys, err
	}
	if next.TokenFile != "" {
		return i.backupKeys(next.TokenFile, identity)
	}
	return keys, nil
}

// bucket returns the bucket of the settings, to which a Secret may add.
func (i installation) bucket(ctx context.Context, s config.Snapshots) (*bucket.Bucket, error) {
	if name := s.S3.ConfigSecret; name != "" {
		a, err := i.administer()
		if err != nil {
			return nil, fmt.Errorf("reading --etcd-s3-config-secret: %w", err)
		}
		secret, err := a.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, explain(fmt.Errorf("reading --etcd-s3-config-secret: %w", err))
		}
		if s, err = s.WithSecret(secret.Data); err != nil {
			return nil, err
		}
	}
	return bucket.Open(s.S3)
}

// errOpen is why a bucket gets no backups that anyone can read.
var errOpen = errors.New("a backup in a bucket must be encrypted, because it has all secrets of the cluster: give --etcd-snapshot-recipient with a " +
	"public key, as age-keygen or ssh-keygen makes them, or start the servers with --token-file")

// upload puts a backup into the bucket, if there is one.
func (s saving) upload(ctx context.Context, made *backup.Copy, keys backup.Keys) error {
	if !s.settings.S3.On || s.file != "" {
		return nil
	}
	sent, err := s.send(ctx, *made, keys)
	if err != nil {
		made.BucketError = err.Error()
		return fmt.Errorf("%s is written, but not in the bucket: %w", made.File, err)
	}
	made.Bucket, made.Sent = sent.to, sent.Bytes
	return nil
}

type sentTo struct {
	bucket.Sent
	to string
}

func (s saving) send(ctx context.Context, made backup.Copy, keys backup.Keys) (sent sentTo, err error) {
	b, err := s.bucket(ctx, s.settings)
	if err != nil {
		return sent, err
	}
	_, secret, err := pki.SealKey(s.dirs)
	if err != nil {
		return sent, err
	}
	derived, err := hkdf.Key(sha256.New, secret[:], nil, "coracle: pieces of backups in buckets", len(bucket.PieceKey{}))
	if err != nil {
		return sent, err
	}
	content, err := backup.Content(made.File, keys)
	if err != nil {
		return sent, err
	}
	defer content.Close()
	keys.Recipients = s.settings.Recipients
	sent.to = b.String()
	sent.Sent, err = b.Put(ctx, made.Summary, bucket.PieceKey(derived), keys, content)
	return sent, err
}

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

// prune removes what is more than the settings keep, of the backups that this server has made by schedule.
func (s saving) prune(ctx context.Context) error {
	if !s.scheduled {
		return nil
	}
	_, err := s.pruneTo(ctx, s.settings.Retention, s.settings.S3.Retention)
	return err
}

// pruneTo keeps some of this server's backups with a name, and returns the names of those that it has removed.
func (s saving) pruneTo(ctx context.Context, here, inBucket int) (gone []string, err error) {
	all, err := backup.Copies(s.settings.Dir)
	if err != nil {
		return nil, err
	}
	good := slices.DeleteFunc(slices.Clone(all), func(c backup.Copy) bool { return c.Tried.IsZero() })
	surplus := backup.Surplus(good, func(c backup.Copy) string { return c.Name }, s.prefix(), here)
	for _, c := range all {
		if len(good) > 0 && c.Tried.IsZero() && c.Created.Before(good[len(good)-1].Created) && strings.HasPrefix(c.Name, s.prefix()) {
			surplus = append(surplus, c) // nobody knows whether it restores, and a later one does
		}
	}
	for _, c := range surplus {
		if err := c.Remove(); err != nil {
			return gone, err
		}
		gone = append(gone, c.File)
	}
	if !s.settings.S3.On {
		return gone, nil
	}
	b, err := s.bucket(ctx, s.settings)
	if err != nil {
		return gone, err
	}
	there, err := b.List(ctx, s.config.Node.Name)
	if err != nil {
		return gone, err
	}
	old := backup.Surplus(there, func(x bucket.Index) string { return x.Name }, s.prefix(), inBucket)
	for _, x := range old {
		gone = append(gone, b.String()+"/"+x.Node+"/"+x.Name)
	}
	if len(old) == 0 {
		return gone, nil
	}
	return gone, b.Delete(ctx, s.config.Node.Name, old)
}
