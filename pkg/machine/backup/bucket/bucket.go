// Package bucket keeps backups in a bucket of S3. A backup is cut into pieces where its content says so, and only pieces that the server's
// folder does not have yet are sent, each compressed and encrypted; an index lists the pieces of one backup. So each can be restored alone,
// and one of a cluster in which little has changed costs little.
//
//	FOLDER/CLUSTER/NODE/NAME.json       the index, written last; CLUSTER begins the hash of the CA's key
//	FOLDER/CLUSTER/NODE/pieces/ab/abcd… the pieces of all backups of that server
//
// The names of pieces are hashes with a key: who can read the bucket learns what backup.Summary has, and sizes. Only one process may change a
// server's folder at a time.
package bucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Bucket is the folder of a cluster in a bucket.
type Bucket struct {
	Limit *throttle.Limit // of the pieces that Put sends; nil for none

	client  *minio.Client
	name    string
	folder  string
	timeout time.Duration
	host    string
}

// retries is how often a request is tried again that failed for a reason that may pass. minio-go doubles the time between them, from 200 ms.
const retries = 4

// Open returns the bucket of a configuration. It does not connect.
func Open(s config.S3) (*Bucket, error) {
	switch {
	case s.Bucket == "":
		return nil, errors.New("the name of the bucket is not given: add --etcd-s3-bucket")
	case (s.AccessKey == "") != (s.SecretKey == ""):
		return nil, errors.New("--etcd-s3-access-key and --etcd-s3-secret-key are given together or not at all")
	}
	transport, err := minio.DefaultTransport(!s.Insecure)
	if err != nil {
		return nil, err
	}
	if err := trust(transport, s); err != nil {
		return nil, err
	}
	if s.Proxy != "" {
		proxy, err := url.Parse(s.Proxy)
		if err != nil || proxy.Host == "" {
			return nil, errors.New("--etcd-s3-proxy is not a URL such as http://HOST:PORT") // it may have a password
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	lookup := map[string]minio.BucketLookupType{"dns": minio.BucketLookupDNS, "path": minio.BucketLookupPath}[s.Lookup]
	client, err := minio.New(s.Endpoint, &minio.Options{
		Creds: secrets(s), Secure: !s.Insecure, Transport: transport, Region: s.Region, BucketLookup: lookup, MaxRetries: retries,
	})
	if err != nil {
		return nil, fmt.Errorf("--etcd-s3-endpoint: %q is not HOST or HOST:PORT: %w", s.Endpoint, err)
	}
	return &Bucket{nil, client, s.Bucket, strings.Trim(path.Clean("/"+s.Folder), "/"), s.Timeout, s.Endpoint}, nil
}

// secrets returns the given credentials. Without any it is those of the machine that a cloud gives it.
func secrets(s config.S3) *credentials.Credentials {
	if s.AccessKey == "" && s.SecretKey == "" {
		return credentials.New(&cloud{})
	}
	return credentials.NewStaticV4(s.AccessKey, s.SecretKey, s.SessionToken)
}

// cloud is the credentials that a cloud gives its machine.
type cloud struct{ credentials.IAM }

// noCredentials is why it gives none.
type noCredentials struct{ error }

// RetrieveWithCredContext asks the cloud.
func (c *cloud) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := c.IAM.RetrieveWithCredContext(cc)
	if err != nil {
		err = noCredentials{err}
	}
	return v, err
}

// trust sets which certificates of the endpoint are accepted.
func trust(transport *http.Transport, s config.S3) error {
	if s.Insecure {
		return nil
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.SkipVerify} //nolint:gosec // the user asks for it
	pem := s.CA
	if s.EndpointCA != "" {
		var err error
		if pem, err = os.ReadFile(s.EndpointCA); err != nil {
			return fmt.Errorf("reading the bucket's CA: %w", err)
		}
	}
	if len(pem) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("--etcd-s3-endpoint-ca: there is no certificate in PEM in it")
	}
	transport.TLSClientConfig.RootCAs = pool
	return nil
}

// String names the folder, for people.
func (b *Bucket) String() string { return "s3://" + path.Join(b.name, b.folder) }

// request bounds one request.
func (b *Bucket) request(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// list calls each with the path and the size of every object below a path.
func (b *Bucket) list(ctx context.Context, below string, recursive bool, each func(path string, size int64)) error {
	ctx, cancel := b.request(ctx)
	defer cancel()
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: below, Recursive: recursive}) {
		if o.Err != nil {
			return b.explain("listing what it has", o.Err)
		}
		each(o.Key, o.Size)
	}
	return nil
}

// advice says what to do about S3's errors, by their codes.
func advice(code string) string {
	switch code {
	case "NoSuchBucket":
		return "make the bucket, or correct --etcd-s3-bucket"
	case "AccessDenied", "AllAccessDisabled":
		return "the credentials need the rights s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject on it"
	case "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed":
		return "correct --etcd-s3-access-key, --etcd-s3-secret-key or --etcd-s3-region"
	case "ExpiredToken", "InvalidToken":
		return "the credentials have expired: give new ones with --etcd-s3-access-key, --etcd-s3-secret-key and --etcd-s3-session-token"
	case "RequestTimeTooSkewed":
		return "this machine's clock is wrong: set it"
	case "QuotaExceeded", "XMinioStorageFull", "XMinioStorageQuotaExceeded", "EntityTooLarge", "InsufficientStorage":
		return "it is full: make room in it, or keep fewer copies with --etcd-s3-retention"
	}
	return ""
}

// explain says what was done with the bucket as an error happened, and what to do about it.
func (b *Bucket) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("the bucket %s at %s: %s", b.name, b.host, doing)
	if do := advice(minio.ToErrorResponse(err).Code); do != "" {
		return fmt.Errorf("%s: %w; %s", text, err, do)
	}
	if none := (noCredentials{}); errors.As(err, &none) {
		return fmt.Errorf("%s: there are no credentials: none are given, and those of the machine's cloud were asked for in vain: %w; give --etcd-s3-access-key and --etcd-s3-secret-key", text, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: it did not answer in %s: see --etcd-s3-timeout", text, b.timeout)
	}
	return fmt.Errorf("%s: %w", text, err)
}
