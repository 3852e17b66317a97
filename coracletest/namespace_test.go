package coracletest

import "testing"

func TestNamespaceFor(t *testing.T) {
	for test, want := range map[string]string{"": "test", "проверка": "test", "TestApp/a_pod": "testapp-a-pod"} {
		if got := namespaceFor(test); got != want {
			t.Errorf("for %q it is %q, want %q", test, got, want)
		}
	}
}
