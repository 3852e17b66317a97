package apiserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
)

// filled is a cache that is filled when the channel is closed.
type filled chan struct{}

func (f filled) Name() string          { return "a cache" }
func (f filled) Done() <-chan struct{} { return f }

// allowOnce is an authorizer that allows everything once its cache is filled.
func allowOnce(cache filled) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		select {
		case <-cache:
			return authorizer.DecisionAllow, "", nil
		default:
			return authorizer.DecisionNoOpinion, "no role", nil
		}
	})
}

func TestSyncedAuthorizer(t *testing.T) {
	for name, c := range map[string]struct {
		fill time.Duration // after this; 0 is at once
		want authorizer.Decision
		took time.Duration
	}{
		"filled before":        {0, authorizer.DecisionAllow, 0},
		"filled a bit later":   {time.Second, authorizer.DecisionAllow, time.Second},
		"filled much too late": {time.Minute, authorizer.DecisionNoOpinion, policyTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				roles := make(filled)
				if c.fill == 0 {
					close(roles)
				} else {
					time.AfterFunc(c.fill, func() { close(roles) })
				}
				a := syncedAuthorizer{allowOnce(roles), []cache.DoneChecker{roles}}
				for range 2 { // Authorize, then the other way to ask; from the second on nothing waits that need not
					began := time.Now()
					decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{})
					if err != nil || decision != c.want || time.Since(began) != c.took {
						t.Errorf("decision %d after %s, %v; want %d after %s", decision, time.Since(began), err, c.want, c.took)
					}
					if c.want == authorizer.DecisionAllow {
						c.took = 0
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestSyncedAuthorizerRefuses: what is refused with filled caches is refused at once, whichever way it is asked.
func TestSyncedAuthorizerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := make(filled)
		close(full)
		a := syncedAuthorizer{allowOnce(make(filled)), []cache.DoneChecker{full}}
		began := time.Now()
		decision, reason, err := a.Authorize(t.Context(), authorizer.AttributesRecord{})
		if decision != authorizer.DecisionNoOpinion || reason != "no role" || err != nil {
			t.Errorf("decision %d, %q, %v", decision, reason, err)
		}
		if d := a.ConditionsAwareAuthorize(t.Context(), authorizer.AttributesRecord{}); d.IsAllow() {
			t.Error("it was allowed")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		slow := make(filled)
		time.AfterFunc(time.Second, func() { close(slow) })
		b := syncedAuthorizer{allowOnce(slow), []cache.DoneChecker{slow}}
		if d := b.ConditionsAwareAuthorize(t.Context(), authorizer.AttributesRecord{}); !d.IsAllow() {
			t.Error("it was refused before its cache was filled")
		}
	})
}
