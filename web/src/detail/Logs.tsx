import { useEffect, useRef, useState } from "preact/hooks";
import { type Obj, stream } from "../api";
import { kinds, path } from "../kinds";

const mostLines = 5000;
const longestLine = 64 << 10;

/** What a container of a pod writes. */
export function Logs({ pod }: { pod: Obj }) {
  const containers: string[] = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].map((c: any) => c.name);
  const [container, setContainer] = useState(containers[0]);
  const [previous, setPrevious] = useState(false);
  const [follow, setFollow] = useState(true);
  const [times, setTimes] = useState(false);
  const [words, setWords] = useState("");
  const [lines, setLines] = useState<string[]>([]);
  const [state, setState] = useState("Loading…");
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const { name, namespace } = pod.metadata;

  useEffect(() => {
    const abort = new AbortController();
    let kept: string[] = [];
    let rest = "";
    let timer = 0;
    setLines([]);
    setState("");
    const show = () => {
      timer = 0;
      setLines(kept);
    };
    const take = (text: string) => {
      const all = (rest + text).split("\n");
      rest = all.pop()!;
      for (; rest.length > longestLine; rest = rest.slice(longestLine)) all.push(rest.slice(0, longestLine));
      kept = [...kept, ...all].slice(-mostLines);
      timer ||= window.setTimeout(show, 100);
    };
    const query = new URLSearchParams({ container, tailLines: "2000", follow: String(follow && !previous), previous: String(previous), timestamps: String(times) });
    stream(`${path(kinds.pods, namespace, name, "log")}?${query}`, take, abort.signal).then(
      () => {
        if (rest) take("\n");
        setState(kept.length ? "" : previous ? "There is no earlier container." : "It has written nothing.");
      },
      (e) => !abort.signal.aborted && setState((e as Error).message),
    );
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [pod.metadata.uid, container, previous, follow, times]);

  useEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const shown = words ? lines.filter((l) => l.toLowerCase().includes(words.toLowerCase())) : lines;
  return (
    <div class="logs">
      <div class="bar">
        <label>
          Container{" "}
          <select value={container} onChange={(e) => setContainer(e.currentTarget.value)}>
            {containers.map((c) => <option key={c}>{c}</option>)}
          </select>
        </label>
        <label><input type="checkbox" checked={follow} onChange={(e) => setFollow(e.currentTarget.checked)} /> Follow</label>
        <label><input type="checkbox" checked={previous} onChange={(e) => setPrevious(e.currentTarget.checked)} /> Previous container</label>
        <label><input type="checkbox" checked={times} onChange={(e) => setTimes(e.currentTarget.checked)} /> Times</label>
        <input type="search" placeholder="Only lines with…" aria-label="Only lines with" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
      </div>
      <pre ref={box} tabIndex={0} role="log" aria-live="off" aria-label={`Log of ${container}`}
        onScroll={(e) => (atEnd.current = e.currentTarget.scrollTop + e.currentTarget.clientHeight > e.currentTarget.scrollHeight - 20)}>
        {shown.join("\n") || state}
        {shown.length > 0 && state && `\n${state}`}
      </pre>
    </div>
  );
}
