import { defineConfig } from "vite";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // nothing inline: the policy of the page forbids it
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
