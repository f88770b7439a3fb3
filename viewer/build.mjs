// Bundles the front end into the package data of mttp.viewing: the same input gives the same bytes.
import { build } from "esbuild";

await build({
  entryPoints: { app: "src/main.ts" },
  outdir: "../src/mttp/viewing/assets",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  logLevel: "warning",
});
