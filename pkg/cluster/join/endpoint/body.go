package endpoint

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits of a request's body. Few requests are served at once (manifests/join.yaml), so none may take long to arrive.
const (
	largestBody = 64 << 10 // bytes
	bodyTimeout = 5 * time.Second
)

// receive reads the body of a request, which handlers then read from memory.
func receive(w http.ResponseWriter, r *http.Request) error {
	arrival := http.NewResponseController(w)
	_ = arrival.SetReadDeadline(time.Now().Add(bodyTimeout)) // if it cannot be set, the API server ends the request after a minute
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return newRefusal(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes", largestBody)
	case err != nil: // after the time the API server may answer 504 first; joining machines try again in both cases
		return newRefusal(http.StatusServiceUnavailable, "the request did not arrive: %v", err)
	}
	_ = arrival.SetReadDeadline(time.Time{}) // or it would end the answer too
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
