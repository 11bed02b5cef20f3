/**
 * An uploaded ONNX file as the layers that the service reads in it: sent once, however many questions follow.
 * Called by main.js; calls service. An image size that the file leaves open makes other layers, so each is asked once.
 */
import { readFile } from "./service.js";

/**
 * What a question says instead of the file.
 * @param {?import("./upload.js").Upload} upload
 * @param {number|string|undefined} image_size as the question has it
 * @returns {Promise<?object>} the answer of `POST /v1/cnns`, null where there is no ONNX file
 */
export function readCnn(upload, image_size) {
  if (!upload?.onnx) return Promise.resolve(null);
  upload.read ??= new Map();
  if (!upload.read.has(image_size)) {
    const answer = readFile({ name: upload.name, content: upload.onnx }, image_size);
    answer.catch(() => upload.read.delete(image_size)); // the next time may go better
    upload.read.set(image_size, answer);
  }
  return upload.read.get(image_size);
}
