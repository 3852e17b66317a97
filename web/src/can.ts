// What the user may do, as the API server says. What they may not do is not offered.

import { type Signal, signal } from "@preact/signals";
import { write } from "./api";
import type { Kind } from "./kinds";
import { facts } from "./state";

const answers = new Map<string, Signal<boolean | undefined>>();

/** Whether the user may do something; undefined until the answer is there. */
export function can(verb: string, k: Kind, namespace?: string, name?: string, subresource?: string): boolean | undefined {
  if (facts.value.readOnly && (!["get", "list", "watch"].includes(verb) || subresource === "exec")) return false;
  const attributes = { verb, group: k.group, resource: k.plural, namespace: k.namespaced ? namespace : undefined, name, subresource };
  const key = JSON.stringify(attributes);
  let answer = answers.get(key);
  if (!answer) {
    answers.set(key, (answer = signal<boolean | undefined>(undefined)));
    void ask(attributes, answer, key);
  }
  return answer.value;
}

async function ask(resourceAttributes: object, answer: Signal<boolean | undefined>, key: string) {
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  try {
    const result = await write<any>("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
    answer.value = result.status.allowed;
  } catch {
    answers.delete(key); // asked again the next time
  }
}

/** Who the API server takes the user for. */
export const user = signal("");
export async function whoAmI() {
  const review = await write<any>("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" });
  user.value = review.status?.userInfo?.username ?? "";
}
