// Parts that are loaded when they are first shown: the terminal and the editor.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Note } from "../ui/parts";

export function lazy<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let loaded: FunctionComponent<P> | undefined;
  return function Lazy(props: P) {
    const [, show] = useState(0);
    const [error, setError] = useState("");
    useEffect(() => {
      if (loaded) return;
      load().then(
        (part) => {
          loaded = part;
          show(1);
        },
        () => setError("This part of the page could not be loaded. Is coracle dashboard still running?"),
      );
    }, []);
    const Part = loaded;
    return Part ? <Part {...props} /> : <Note bad={!!error}>{error || "Loading…"}</Note>;
  };
}
