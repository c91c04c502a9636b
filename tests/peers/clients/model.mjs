// A language model that chooses one tool and is content with its result, on loopback: it lets the client programs use the tools of a
// server without an account. It speaks the streaming forms of two public APIs, as far as the clients need them.
//
// node model.mjs TOOL JSON: prints `listening URL`, then one JSON object a line for each request: `{ path, tools }`.
// The model calls TOOL with the arguments JSON, and repeats the result in its answer.

import { createServer } from "node:http";

const [wanted, text] = process.argv.slice(2);
const args = JSON.parse(text);

const say = (line) => process.stdout.write(`${line}\n`);

function body(request) {
  return new Promise((resolve) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => resolve(Buffer.concat(parts).toString()));
  });
}

/** The Messages API of Anthropic. */
function messages(asked, events) {
  const tool = (asked.tools ?? []).find(({ name }) => name === wanted);
  const contents = (asked.messages ?? []).flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const result = contents.find(({ type }) => type === "tool_result");
  const call = tool && !result;
  const send = (event) => events.push(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  const message = { id: "msg_1", type: "message", role: "assistant", model: asked.model, content: [], stop_reason: null };
  send({ type: "message_start", message: { ...message, usage: { input_tokens: 1, output_tokens: 1 } } });
  const block = call ? { type: "tool_use", id: "toolu_1", name: tool.name, input: {} } : { type: "text", text: "" };
  const delta = call
    ? { type: "input_json_delta", partial_json: JSON.stringify(args) }
    : { type: "text_delta", text: `The tool said: ${JSON.stringify(result?.content ?? "nothing")}` };
  send({ type: "content_block_start", index: 0, content_block: block });
  send({ type: "content_block_delta", index: 0, delta });
  send({ type: "content_block_stop", index: 0 });
  const stop = { stop_reason: call ? "tool_use" : "end_turn", stop_sequence: null };
  send({ type: "message_delta", delta: stop, usage: { output_tokens: 1 } });
  send({ type: "message_stop" });
  return (asked.tools ?? []).map(({ name }) => name);
}

/** The Gemini API. */
function contents(asked, events) {
  const declared = (asked.tools ?? []).flatMap(({ functionDeclarations }) => functionDeclarations ?? []);
  const tool = declared.find(({ name }) => name === wanted);
  const parts = (asked.contents ?? []).flatMap((content) => content.parts ?? []);
  const result = parts.find((part) => part.functionResponse);
  const part =
    tool && !result
      ? { functionCall: { name: tool.name, args } }
      : { text: `The tool said: ${JSON.stringify(result?.functionResponse.response ?? "nothing")}` };
  const candidate = { content: { role: "model", parts: [part] }, finishReason: "STOP", index: 0 };
  const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
  events.push(`data: ${JSON.stringify({ candidates: [candidate], usageMetadata })}\n\n`);
  return declared.map(({ name }) => name);
}

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://127.0.0.1");
  const asked = await body(request);
  const form = pathname.endsWith("/messages") ? messages : pathname.endsWith(":streamGenerateContent") ? contents : undefined;
  if (request.method !== "POST" || !form) {
    say(JSON.stringify({ path: pathname, tools: [] }));
    response.writeHead(404, { "content-type": "application/json" }).end("{}");
    return;
  }
  const events = [];
  const tools = form(JSON.parse(asked), events);
  say(JSON.stringify({ path: pathname, tools }));
  response.writeHead(200, { "content-type": "text/event-stream" }).end(events.join(""));
});
server.listen(0, "127.0.0.1", () => say(`listening http://127.0.0.1:${server.address().port}`));
