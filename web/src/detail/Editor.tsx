import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { nonce } from "../nonce";

const colours = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--accent-text)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--busy)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.meta], color: "var(--faint)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13.5px", backgroundColor: "transparent", color: "var(--text)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selected)" },
});

/** An editor for YAML. Tab leaves it, as everywhere on the page. */
export function Editor({ label, value, readOnly, change }: { label: string; value: string; readOnly: boolean; change: (text: string) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  useEffect(() => {
    const state = EditorState.create({
      doc: value,
      extensions: [
        EditorView.cspNonce.of(nonce), lineNumbers(), history(), indentOnInput(), drawSelection(), yaml(), syntaxHighlighting(colours), look,
        keymap.of([...defaultKeymap, ...historyKeymap]), EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        EditorState.readOnly.of(readOnly), EditorView.editable.of(!readOnly), ...(readOnly ? [] : [highlightActiveLine()]),
        EditorView.updateListener.of((u) => u.docChanged && change(u.state.doc.toString())),
      ],
    });
    view.current = new EditorView({ state, parent: box.current! });
    if (!readOnly) view.current.focus();
    return () => view.current!.destroy();
  }, []);
  useEffect(() => {
    const v = view.current!;
    if (readOnly && v.state.doc.toString() !== value) v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);
  return <div class="editor" ref={box} />;
}
