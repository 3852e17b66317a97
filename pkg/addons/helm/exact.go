package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// exact are values that come out of JSON as they went in. JSON has one type for numbers, but templates tell integers from
// floats: what set says is an integer, and all other numbers are floats.
type exact map[string]any

// MarshalJSON writes floats with an exponent, and integers without.
func (e exact) MarshalJSON() ([]byte, error) {
	return json.Marshal(eachSingle(map[string]any(e), func(n any) any {
		if f, ok := n.(float64); ok {
			return json.RawMessage(strconv.FormatFloat(f, 'e', -1, 64))
		}
		return n
	}))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *exact) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var read map[string]any
	if err := decoder.Decode(&read); err != nil {
		return fmt.Errorf("reading values: %w", err)
	}
	var wrong error
	typed, _ := eachSingle(read, func(n any) any {
		number, ok := n.(json.Number)
		if !ok {
			return n
		}
		var err error
		if strings.ContainsAny(number.String(), ".eE") {
			n, err = number.Float64()
		} else {
			n, err = number.Int64()
		}
		if err != nil {
			wrong = fmt.Errorf("reading values: %w", err)
		}
		return n
	}).(map[string]any)
	*e = typed
	return wrong
}

// eachSingle copies values with what convert makes of each value that is neither a mapping nor a list.
func eachSingle(v any, convert func(any) any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = eachSingle(value, convert)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = eachSingle(value, convert)
		}
		return out
	}
	return convert(v)
}
