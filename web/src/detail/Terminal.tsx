import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Obj, socket } from "../api";
import { kinds, path } from "../kinds";
import { nonce } from "../nonce";

// xterm makes style elements, which the policy of the page allows with its number only.
const create = document.createElement.bind(document);
document.createElement = ((tag: string, options?: ElementCreationOptions) => {
  const element = create(tag, options);
  if (tag === "style") element.nonce = nonce;
  return element;
}) as typeof document.createElement;

const shell = 'command -v bash >/dev/null && exec bash; command -v ash >/dev/null && exec ash; exec sh';
const [stdin, stdout, stderr, failure, resize] = [0, 1, 2, 3, 4];

/** A shell in a container, over Kubernetes' own protocol. */
export function Terminal({ pod }: { pod: Obj }) {
  const containers: string[] = (pod.spec?.containers ?? []).map((c: any) => c.name);
  const [container, setContainer] = useState(containers[0]);
  const [attempt, setAttempt] = useState(0);
  const [ended, setEnded] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const { name, namespace, uid } = pod.metadata;

  useEffect(() => {
    setEnded("");
    const term = new Xterm({ fontFamily: "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', monospace", fontSize: 14, cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches, screenReaderMode: true,
      theme: { background: "#0b1220", foreground: "#dbe7f3", cursor: "#5eead4", selectionBackground: "#24405a" } });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(box.current!);
    fit.fit();
    const query = new URLSearchParams([["container", container], ["stdin", "true"], ["stdout", "true"], ["tty", "true"], ["command", "sh"], ["command", "-c"], ["command", shell]]);
    const ws = socket(`${path(kinds.pods, namespace, name, "exec")}?${query}`, ["v5.channel.k8s.io"]);
    ws.binaryType = "arraybuffer";
    const send = (channel: number, text: string) => {
      if (ws.readyState !== WebSocket.OPEN) return;
      const data = new TextEncoder().encode(text);
      const frame = new Uint8Array(data.length + 1);
      frame[0] = channel;
      frame.set(data, 1);
      ws.send(frame);
    };
    const size = () => send(resize, JSON.stringify({ Width: term.cols, Height: term.rows }));
    let reason = "";
    ws.onopen = () => {
      size();
      term.focus();
    };
    ws.onmessage = (m) => {
      const data = new Uint8Array(m.data as ArrayBuffer);
      if (data[0] === stdout || data[0] === stderr) term.write(data.subarray(1));
      else if (data[0] === failure) {
        const status = JSON.parse(new TextDecoder().decode(data.subarray(1)));
        reason = status.status === "Success" ? "The shell has ended." : status.message;
      }
    };
    ws.onclose = () => setEnded(reason || "The connection was closed. Does the container have a shell?");
    term.onData((text) => send(stdin, text));
    term.onResize(size);
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      ws.onclose = null;
      ws.close();
      term.dispose();
    };
  }, [uid, container, attempt]);

  return (
    <div class="terminal">
      <div class="bar">
        <label>
          Container{" "}
          <select value={container} onChange={(e) => setContainer(e.currentTarget.value)}>
            {containers.map((c) => <option key={c}>{c}</option>)}
          </select>
        </label>
        <span role="status">{ended}</span>
        {ended && <button type="button" onClick={() => setAttempt(attempt + 1)}>Open again</button>}
      </div>
      <div class="screen" ref={box} />
    </div>
  );
}
