package coracletest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"
)

// object is an object of the API.
type object = map[string]any

// statusError is an answer of the API that is no success.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return e.message }

// call sends an object to a path of the API.
func (c *Cluster) call(ctx context.Context, method, path string, o object) error {
	_, err := c.request(ctx, method, path, o)
	return err
}

// get reads an object.
func (c *Cluster) get(ctx context.Context, path string, to *object) error {
	data, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func (c *Cluster) request(ctx context.Context, method, path string, o object) ([]byte, error) {
	client, err := rest.HTTPClientFor(c.RESTConfig)
	if err != nil {
		return nil, err
	}
	var body io.Reader = http.NoBody
	if o != nil {
		data, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.RESTConfig.Host+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(data, &status)
		err = &statusError{resp.StatusCode, fmt.Sprintf("%s %s: %s %s", method, path, resp.Status, status.Message)}
	}
	return data, err
}

// hasCondition reports whether a condition of an object is true.
func hasCondition(o object, name string) bool {
	status, _ := o["status"].(object)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(one any) bool {
		c, _ := one.(object)
		return c["type"] == name && c["status"] == "True"
	})
}

// areEstablished reports whether the custom resources of all definitions in a list are served.
func areEstablished(list object) bool {
	items, _ := list["items"].([]any)
	return !slices.ContainsFunc(items, func(one any) bool {
		o, _ := one.(object)
		return !hasCondition(o, "Established")
	})
}
