// Small parts that all views are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useRef } from "preact/hooks";
import { age } from "../format";
import type { Health } from "../health";
import { namespace, now } from "../state";
import type { State } from "../watch";

/** A state: a dot whose shape differs with the tone, for those who do not see the colour, and the word. */
export function Badge({ health }: { health: Health }) {
  return (
    <span class={`badge tone-${health.tone}`}>
      <i aria-hidden="true" />
      <span>{health.text}</span>
    </span>
  );
}

/** Links, with commas. */
export function Links({ to }: { to: { text: string; href?: string }[] }) {
  return <>{to.map((l, i) => <>{i > 0 && ", "}{l.href ? <a key={l.text} href={l.href}>{l.text}</a> : l.text}</>)}</>;
}

/** How long ago something was; it counts. */
export function Age({ from }: { from?: string }) {
  return <time dateTime={from} title={from && new Date(from).toLocaleString()}>{age(from, now.value)}</time>;
}

export function Card({ title, aside, children, class: c = "" }: { title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${c}`}>
      {(title || aside) && (
        <header>
          {title && <h2>{title}</h2>}
          {aside}
        </header>
      )}
      {children}
    </section>
  );
}

/** A sentence in place of what is not there. */
export function Note({ children, bad }: { children: ComponentChildren; bad?: boolean }) {
  return <p class={`note ${bad ? "bad" : ""}`}>{children}</p>;
}

/** Keeps a failure of what it holds to itself, until another place is looked at. */
export function Fence({ at, children }: { at: string; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((e) => console.error(e));
  useEffect(() => {
    if (error) reset();
  }, [at]);
  if (!error) return <>{children}</>;
  return <p class="note bad" role="alert">This part of the page failed: {String(error.message ?? error)} <button type="button" onClick={reset}>Try again</button></p>;
}

/** Says why a list is empty, or that it may be out of date. */
export function ListState({ state, error, what }: { state: State; error: string; what: string }) {
  if (state === "loading") return <Note>Loading {what}…</Note>;
  if (state === "denied") {
    const where = what === "nodes" ? "" : namespace.value ? ` in the namespace ${namespace.value}` : " in all namespaces; name one above that you may look at";
    return <Note>{`Your account may not list ${what}${where}.`}</Note>;
  }
  if (state === "absent") return <Note>This cluster has no {what}.</Note>;
  if (state === "failed" || state === "reconnecting") return <Note bad>{error || `The connection was lost; ${what} are as they were.`}</Note>;
  return null;
}

/** A dialog of the browser: it holds the focus, and Escape closes it. */
export function Dialog({ title, close, children, wide }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => ref.current!.showModal(), []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} onClose={close} onClick={(e) => e.target === ref.current && close()} aria-labelledby="dialog-title">
      <div>
        <h2 id="dialog-title">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** A bar of how much of something is used. */
export function Meter({ label, part, whole, text }: { label: string; part: number; whole: number; text: string }) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const ref = useRef<HTMLElement>(null);
  useEffect(() => ref.current!.style.setProperty("--share", String(share)), [share]);
  return (
    <div class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)} aria-valuetext={text}>
      <span class="meter-label">{label}</span>
      <span class="meter-text">{text}</span>
      <span class={`meter-bar ${share > 0.9 ? "full" : share > 0.75 ? "high" : ""}`}><b ref={ref} /></span>
    </div>
  );
}
