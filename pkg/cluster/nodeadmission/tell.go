package nodeadmission

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apiserver/pkg/warning"
)

// notice is what a node was told last.
type notice struct {
	text string
	at   time.Time
}

// leaveOut notes what is left out. Of many or long notes only the begin is kept: the node chooses their number and length.
func (w *write) leaveOut(format string, args ...any) {
	if w.leftOut++; w.leftOut <= 5 {
		w.told = append(w.told, fmt.Sprintf("%.400s", fmt.Sprintf(format, args...)))
	}
}

// tell warns the node about what was left out, unless it was told the same before, and at most once a minute: the node can vary it.
// about is what was written.
func (p *Plugin) tell(ctx context.Context, about string, w write) {
	if w.leftOut == 0 && !w.compared {
		return // nothing was asked for
	}
	text := strings.Join(w.told, "; ")
	if more := w.leftOut - len(w.told); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	p.mu.Lock()
	before, now := p.told[about], time.Now()
	news := text != before.text && (text == "" || now.Sub(before.at) >= time.Minute)
	switch {
	case news && text == "":
		p.told[about] = notice{at: before.at}
	case news:
		p.told[about] = notice{text, now}
	}
	p.mu.Unlock()
	if news && text != "" {
		warning.AddWarning(ctx, "", text)
		logrus.WithField("component", "join").WithField("node", w.name).Warn(text)
	}
}
