// The frame around all views: where one can go, what one looks at, and whether it is live.

import { lazy } from "./detail/lazy";
import { useEffect, useRef, useState } from "preact/hooks";
import { can, user } from "./can";
import { Detail } from "./detail/Detail";
import { kinds } from "./kinds";
import { facts, filter, go, light, namespace, said, theme, useList, where } from "./state";
import { Dialog, Fence } from "./ui/parts";
import { Addons, Backups, Machine } from "./views/cluster";
import { Events } from "./views/Events";
import { Nodes, Pods, Workloads } from "./views/lists";
import { Network } from "./views/Network";
import { Overview } from "./views/Overview";
import { states } from "./watch";

const Create = lazy(() => import("./detail/Yaml").then((m) => m.Create));

interface View {
  id: string;
  title: string;
  key: string;
  show: () => any;
  filters?: boolean;
}

const views: View[] = [
  { id: "overview", title: "Overview", key: "o", show: () => <Overview /> },
  { id: "nodes", title: "Nodes", key: "n", show: () => <Nodes />, filters: true },
  { id: "workloads", title: "Workloads", key: "w", show: () => <Workloads />, filters: true },
  { id: "pods", title: "Pods", key: "p", show: () => <Pods />, filters: true },
  { id: "network", title: "Network", key: "s", show: () => <Network />, filters: true },
  { id: "events", title: "Events", key: "e", show: () => <Events />, filters: true },
  { id: "addons", title: "Add-ons", key: "a", show: () => <Addons /> },
  { id: "backups", title: "Backups", key: "b", show: () => <Backups /> },
  { id: "machine", title: "This machine", key: "m", show: () => <Machine /> },
];
const here = () => views.filter((v) => v.id !== "machine" || facts.value.reports.length > 0);

export function App() {
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const id = where.value[0];
  const view = views.find((v) => v.id === id);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useShortcuts(() => setHelp(true));
  useEffect(() => {
    setMenu(false);
    if (view) document.title = `${view.title} · coracle`;
    // Those who hear the page learn that another view is there; the first time the browser says it.
    if (!first.current && document.activeElement?.closest("nav, main") ) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [where.value.slice(0, 6).join("/")]);
  if (id === "wall") return <main class="wall-main"><Fence at="wall"><Overview /></Fence></main>;
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <nav class={menu ? "open" : ""} aria-label="Views">
        <a class="brand" href="#/overview"><img src={icon} alt="" width="26" height="26" />coracle</a>
        <ul>
          {here().map((v) => (
            <li key={v.id}><a href={`#/${v.id}`} aria-current={v.id === id ? "page" : undefined}>{v.title}</a></li>
          ))}
        </ul>
        <div class="nav-foot">
          <button type="button" onClick={() => setHelp(true)}>Keys <kbd>?</kbd></button>
          <a href="#/wall">Wall screen</a>
          <span class="faint">{facts.value.version}</span>
        </div>
      </nav>
      <header class="top">
        <button type="button" class="menu" aria-label="Views" aria-expanded={menu} onClick={() => setMenu(!menu)}>☰</button>
        <Context />
        <Namespaces />
        {view?.filters && <input id="filter" type="search" placeholder="Filter" aria-label={`Filter ${view.title}`} value={filter.value} onInput={(e) => (filter.value = e.currentTarget.value)} />}
        <span class="grow" />
        {can("create", kinds.deployments, namespace.value || undefined) && <a class="button" href="#/create">Apply YAML</a>}
        <Live />
        <button type="button" class="theme" aria-label={`Change to ${light.value ? "dark" : "light"} colours`} title="Dark or light (t)" onClick={turn}>{light.value ? "☾" : "☀"}</button>
      </header>
      <main ref={main} id="main" tabIndex={-1} class={`view-${id}`}>
        <Fence at={where.value.slice(0, 6).join("/")}>
          {id === "object" ? <Detail /> : id === "create" ? <Create /> : view ? <><h1 class="unseen">{view.title}</h1>{view.show()}</> : <p class="note">There is no such page. <a href="#/overview">To the overview</a></p>}
        </Fence>
      </main>
      <div class={`said ${said.value?.bad ? "bad" : ""}`} role="status" aria-live="polite">{said.value?.text}</div>
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

import icon from "./icon.svg";

const turn = () => (theme.value = light.value ? "dark" : "light");

function Context() {
  return (
    <span class="context" title={`${facts.value.server} as ${user.value}`}>
      <strong>{facts.value.context || facts.value.server}</strong>
      <span class="faint">{user.value}{facts.value.readOnly ? " · only shows" : ""}</span>
    </span>
  );
}

/** The choice of a namespace; whoever may not list them types one. */
function Namespaces() {
  const { items, state } = useList(kinds.namespaces);
  const [typed, setTyped] = useState(namespace.value);
  useEffect(() => {
    if (state !== "denied" || namespace.value) return;
    namespace.value = facts.value.namespace;
    setTyped(namespace.value);
  }, [state]);
  if (state === "denied")
    return (
      <form class="namespace" onSubmit={(e) => { e.preventDefault(); namespace.value = typed.trim(); }}>
        <input aria-label="Namespace" placeholder="Namespace" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} onBlur={() => (namespace.value = typed.trim())} />
      </form>
    );
  const names = items.map((n) => n.metadata.name).sort();
  if (namespace.value && !names.includes(namespace.value)) names.unshift(namespace.value);
  return (
    <select class="namespace" aria-label="Namespace" value={namespace.value} onChange={(e) => (namespace.value = e.currentTarget.value)}>
      <option value="">All namespaces</option>
      {names.map((n) => <option key={n} value={n}>{n}</option>)}
    </select>
  );
}

/** Says in words whether what is seen is how it is. */
function Live() {
  const all = states();
  const lost = all.some((s) => s === "reconnecting" || s === "failed");
  const loading = all.some((s) => s === "loading");
  return <span class={`live ${lost ? "lost" : loading ? "loading" : ""}`} role="status">{lost ? "Connection lost" : loading ? "Loading" : "Live"}</span>;
}

function useShortcuts(help: () => void) {
  useEffect(() => {
    let gone = false;
    let timer = 0;
    const onKey = (e: KeyboardEvent) => {
      const target = e.target as HTMLElement;
      if (e.ctrlKey || e.metaKey || e.altKey || target.closest("input, select, textarea, dialog, .xterm, .cm-editor")) return;
      const to = gone && here().find((v) => v.key === e.key);
      gone = false;
      if (to) go(`#/${to.id}`);
      else if (e.key === "g") {
        gone = true;
        clearTimeout(timer);
        timer = window.setTimeout(() => (gone = false), 1500);
      } else if (e.key === "/") {
        const field = document.getElementById("filter");
        if (!field) return;
        field.focus();
      } else if (e.key === "t") turn();
      else if (e.key === "?") help();
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function Help({ close }: { close: () => void }) {
  const keys: [string, string][] = [...here().map((v): [string, string] => [`g ${v.key}`, v.title]), ["/", "Filter"], ["↑ ↓", "Move in a list"], ["t", "Dark or light"], ["?", "This help"], ["Esc", "Close"]];
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">{keys.map(([k, what]) => <div key={k}><dt>{k.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
      <footer><button type="button" onClick={close}>Close</button></footer>
    </Dialog>
  );
}
