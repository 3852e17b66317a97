// Package authorization is the example of docs/extending/authorization.md: who is who, and who may do what.
package authorization

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an OpenID Connect issuer: it says where its keys are, and signs who somebody is.
type Issuer struct {
	URL string // under which the API server finds it
	RSA *rsa.PrivateKey
	EC  *ecdsa.PrivateKey
}

// NewIssuer makes an issuer with a key for RS256 and one for ES256.
func NewIssuer() (*Issuer, error) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &Issuer{RSA: r, EC: e}, err
}

// ServeHTTP serves discovery and the public keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256", "ES256"}})
	case "/keys":
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
			{Key: &i.RSA.PublicKey, KeyID: "rsa", Algorithm: string(jose.RS256), Use: "sig"},
			{Key: &i.EC.PublicKey, KeyID: "ec", Algorithm: string(jose.ES256), Use: "sig"}}})
	default:
		http.NotFound(w, r)
	}
}

// Person is what a token says beside issuer, audience and times.
type Person struct {
	Email    string   `json:"email"`
	Verified bool     `json:"email_verified"`
	Teams    []string `json:"teams"`
}

// Token signs a token for a person that is valid for an audience until expiry.
func (i *Issuer) Token(alg jose.SignatureAlgorithm, p Person, audience string, expiry time.Time) (string, error) {
	key := jose.JSONWebKey{Key: i.RSA, KeyID: "rsa"}
	if alg == jose.ES256 {
		key = jose.JSONWebKey{Key: i.EC, KeyID: "ec"}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(p).Claims(jwt.Claims{Issuer: i.URL, Subject: p.Email, Audience: jwt.Audience{audience},
		IssuedAt: jwt.NewNumericDate(time.Now().Add(-time.Hour)), Expiry: jwt.NewNumericDate(expiry)}).Serialize()
}
