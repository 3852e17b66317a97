package dataplane

import (
	"net/http"
	"strconv"
	"strings"
)

// answer answers a request that no backend gets.
func answer(w http.ResponseWriter, req *http.Request, status int, text string) error {
	if req.ProtoMajor >= 2 && strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc") {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", grpcStatus(status))
		w.Header().Set("Grpc-Message", strings.TrimSpace(text))
		w.WriteHeader(http.StatusOK)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if req.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write([]byte(text))
	return err
}

// grpcStatus returns what gRPC has for a status of HTTP.
func grpcStatus(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "13" // INTERNAL
	case http.StatusNotFound, http.StatusMisdirectedRequest:
		return "12" // UNIMPLEMENTED
	case http.StatusGatewayTimeout:
		return "4" // DEADLINE_EXCEEDED
	case http.StatusUnauthorized:
		return "16" // UNAUTHENTICATED
	case http.StatusForbidden:
		return "7" // PERMISSION_DENIED
	}
	return "14" // UNAVAILABLE
}
