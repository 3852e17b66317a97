// What can be done with an object. Only what the user may do is offered.

import { useState } from "preact/hooks";
import { type Obj, patch, write } from "../api";
import { can } from "../can";
import { counts } from "../health";
import { type Kind, kinds, path } from "../kinds";
import { go, say } from "../state";
import { Dialog } from "../ui/parts";

const restartable = ["Deployment", "StatefulSet", "DaemonSet"];
const scalable = ["Deployment", "StatefulSet"];

export function Actions({ kind, object: o }: { kind: Kind; object: Obj }) {
  const [open, setOpen] = useState<"scale" | "restart" | "delete" | "cordon" | "">("");
  const { name, namespace } = o.metadata;
  const may = (verb: string, sub?: string) => can(verb, kind, namespace, name, sub) === true;
  const close = () => setOpen("");
  const leaving = !!o.metadata.deletionTimestamp;
  const cordoned = !!o.spec?.unschedulable;
  const offers = [
    scalable.includes(kind.kind) && may("patch", "scale") && <button type="button" onClick={() => setOpen("scale")}>Scale</button>,
    restartable.includes(kind.kind) && may("patch") && <button type="button" onClick={() => setOpen("restart")}>Restart</button>,
    kind === kinds.nodes && may("patch") && <button type="button" onClick={() => setOpen("cordon")}>{cordoned ? "Uncordon" : "Cordon"}</button>,
    may("delete") && !leaving && <button type="button" class="danger" onClick={() => setOpen("delete")}>Delete</button>,
  ].filter(Boolean);
  const asked = can("delete", kind, namespace, name) !== undefined;
  return (
    <div class="actions">
      {offers}
      {asked && offers.length === 0 && !leaving && <span class="faint">You may look at this {kind.kind}, but not change it.</span>}
      {open === "scale" && <Scale kind={kind} object={o} close={close} />}
      {open === "restart" && (
        <Confirm title={`Restart ${name}?`} verb="Restart" close={close} done={`${name} restarts, pod by pod.`}
          act={() => patch(path(kind, namespace, name), { spec: { template: { metadata: { annotations: { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() } } } } })}>
          Its pods are replaced by new ones, as its update strategy says.
        </Confirm>
      )}
      {open === "cordon" && (
        <Confirm title={`${cordoned ? "Uncordon" : "Cordon"} ${name}?`} verb={cordoned ? "Uncordon" : "Cordon"} close={close} done={cordoned ? `${name} takes new pods.` : `${name} takes no new pods.`}
          act={() => patch(path(kind, undefined, name), { spec: { unschedulable: !cordoned } })}>
          {cordoned ? "New pods are placed on it again." : "No new pods are placed on it; those that run there stay."}
        </Confirm>
      )}
      {open === "delete" && <Delete kind={kind} object={o} close={close} />}
    </div>
  );
}

interface ConfirmProps {
  title: string;
  verb: string;
  done: string;
  danger?: boolean;
  blocked?: boolean;
  act: () => Promise<unknown>;
  close: () => void;
  children: any;
}

function Confirm({ title, verb, done, danger, blocked, act, close, children }: ConfirmProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    try {
      await act();
      say(done);
      close();
    } catch (e) {
      setError((e as Error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        <div class="dialog-text">{children}</div>
        {error && <p class="note bad" role="alert">{error}</p>}
        <footer>
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" class={danger ? "danger solid" : "solid"} disabled={busy || blocked}>{verb}</button>
        </footer>
      </form>
    </Dialog>
  );
}

function Scale({ kind, object: o, close }: { kind: Kind; object: Obj; close: () => void }) {
  const { name, namespace } = o.metadata;
  const [replicas, setReplicas] = useState<number>(counts(o)?.want ?? 1);
  return (
    <Confirm title={`Scale ${name}`} verb="Scale" close={close} blocked={!(replicas >= 0)} done={`${name} is scaled to ${replicas}.`}
      act={() => patch(path(kind, namespace, name, "scale"), { spec: { replicas } })}>
      <label class="field">
        <span>Pods</span>
        <span class="stepper">
          <button type="button" aria-label="One less" onClick={() => setReplicas(Math.max(0, replicas - 1))}>−</button>
          <input type="number" min={0} max={10000} value={replicas} onInput={(e) => setReplicas(e.currentTarget.valueAsNumber)} />
          <button type="button" aria-label="One more" onClick={() => setReplicas(replicas + 1)}>+</button>
        </span>
      </label>
    </Confirm>
  );
}

/** Deleting asks for the name, except of a pod, which its owner replaces. */
function Delete({ kind, object: o, close }: { kind: Kind; object: Obj; close: () => void }) {
  const { name, namespace } = o.metadata;
  const [typed, setTyped] = useState("");
  const light = kind === kinds.pods && !!o.metadata.ownerReferences?.length;
  return (
    <Confirm title={`Delete ${kind.kind} ${name}?`} verb="Delete" danger close={close} blocked={!light && typed !== name} done={`${name} is being deleted.`}
      act={() => write("DELETE", path(kind, namespace, name), { propagationPolicy: "Background" }).then(() => kind !== kinds.pods && go("#/overview"))}>
      {light ? (
        <>Its {o.metadata.ownerReferences![0].kind} makes another in its place.</>
      ) : (
        <label class="field">
          <span>This cannot be undone. Type <strong>{name}</strong> to confirm.</span>
          <input type="text" autoComplete="off" spellcheck={false} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
        </label>
      )}
    </Confirm>
  );
}
