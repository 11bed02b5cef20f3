/**
 * A chosen file as what can be asked about: an ONNX file without its weights, or a layer table.
 * Called by form.js; calls onnx_strip and layer_table. Nothing is sent from here.
 */
import { size } from "./format.js";
import { t } from "./i18n.js";
import { fromCsv, fromJson, isMeasurements } from "./layer_table.js";
import { withoutWeights } from "./onnx_strip.js";

/** What the service takes of an ONNX file. */
export const MOST_ONNX_BYTES = 16 * 2 ** 20;

/**
 * @typedef {object} Upload
 * @property {string} name the file's
 * @property {?Blob} onnx
 * @property {?object} layer_table
 * @property {string} about what was read, in words
 */

/**
 * Read a file.
 * @param {File} file
 * @returns {Promise<Upload>}
 * @throws {Error} with words for the user
 */
export async function readUpload(file) {
  const ending = file.name.toLowerCase().match(/\.(onnx|csv|json)$/)?.[1];
  if (!ending) throw new Error(t("file_kind", { name: file.name }));
  return ending === "onnx" ? readOnnx(file) : readTable(file, ending);
}

async function readOnnx(file) {
  const onnx = await stripped(file);
  if (onnx.size > MOST_ONNX_BYTES) {
    const most = size(MOST_ONNX_BYTES);
    throw new Error(t("file_too_large", { name: file.name, size: size(onnx.size), most }));
  }
  const about = t("file_onnx", { name: file.name, sent: size(onnx.size), size: size(file.size) });
  return { name: file.name, onnx, layer_table: null, about };
}

async function stripped(file) {
  let bytes;
  try {
    bytes = new Uint8Array(await file.arrayBuffer());
  } catch (error) {
    throw new Error(t("file_unreadable", { name: file.name, why: error.message }));
  }
  try {
    return withoutWeights(bytes);
  } catch (error) {
    if (file.size <= MOST_ONNX_BYTES) return file; // the service says what is wrong with it
    throw new Error(t("file_unreadable", { name: file.name, why: error.message }));
  }
}

async function readTable(file, ending) {
  const stem = file.name.replace(/\.[^.]*$/, "");
  const text = await file.text().catch((error) => { throw new Error(t("file_unreadable", { name: file.name, why: error.message })); });
  if (ending === "csv" && isMeasurements(text)) throw new Error(t("file_measurements", { name: file.name }));
  try {
    const layer_table = ending === "csv" ? fromCsv(text, stem) : fromJson(text, stem);
    const layers = t("file_layers", { name: file.name, n: layer_table.layers.length });
    const about = layer_table.step ? `${layers} · ${t("batch_of", { batch: layer_table.step.batch_size })}` : layers;
    return { name: file.name, onnx: null, layer_table, about };
  } catch (error) {
    throw new Error(t("file_no_table", { name: file.name, why: error.message }));
  }
}
