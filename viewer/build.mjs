// Bundles the front end into the package data of mttp.viewing: the same input gives the same bytes.
import { build } from "esbuild";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const outdir = "../src/mttp/viewing/assets";
const { metafile } = await build({
  entryPoints: { app: "src/main.ts" },
  outdir,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
});

// The licences of the libraries inside must go with every copy, and each report is one.
const used = Object.entries(metafile.outputs).flatMap(([, output]) => Object.keys(output.inputs));
const packages = [...new Set(used.flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []))].sort();
const byText = new Map();
for (const name of packages) {
  const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].map((one) => `node_modules/${name}/${one}`).find(existsSync);
  if (!file) throw new Error(`${name} has no licence`);
  const text = readFileSync(file, "utf8").trim().replaceAll("*/", "* /").replace(/[^\x00-\x7f]/g, "-");
  byText.set(text, [...(byText.get(text) ?? []), name]);
}
const notices = [...byText].map(([text, names]) => `${names.join(", ")}:\n\n${text}`).join("\n\n");
const script = `${outdir}/app.js`;
writeFileSync(script, `${readFileSync(script, "utf8").trimEnd()}\n/*\n${notices}\n*/\n`);
