// A conformance server as one is written on the TypeScript SDK 2.x today: both eras on one URL, legacy clients in sessions of
// the SDK's Node transport, modern ones by its handler. Its legacy questions are put while their call runs.
//
// node dual.mjs [--port N] [--apart]
// Port 0, the default, takes a free one. Prints `listening <url>` once it serves. With `--apart` it has three tools instead: one
// in both eras, and one in each of them alone. The legacy era alone has a prompt and a resource then.

import {
    NodeStreamableHTTPServerTransport,
    localhostHostValidation,
    localhostOriginValidation,
    toNodeHandler,
    toWebRequest
} from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, isInitializeRequest, isLegacyRequest } from '@modelcontextprotocol/server';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { parseArgs } from 'node:util';

import { Events } from './fixture/events.mjs';
import { build } from './fixture/server.mjs';
import { World } from './fixture/world.mjs';

const { values: flags } = parseArgs({
    options: { port: { type: 'string', default: '0' }, apart: { type: 'boolean', default: false } }
});

const world = new World();
const made = era => (flags.apart ? apart(era) : build(era, world, { pushing: true }));
const handler = createMcpHandler(({ era }) => made(era).server, { legacy: 'reject' });
world.modern = handler.notify;
const modern = toNodeHandler(handler);

/** @type {Map<string, NodeStreamableHTTPServerTransport>} */
const sessions = new Map();

const hostAllowed = localhostHostValidation();
const originAllowed = localhostOriginValidation();
const http = createServer((request, response) => {
    if (!hostAllowed(request, response) || !originAllowed(request, response)) return;
    if (new URL(request.url, 'http://localhost').pathname !== '/mcp') {
        response.writeHead(404).end();
        return;
    }
    answer(request, response).catch(error => {
        console.error(error);
        if (!response.headersSent) refuse(response, 500, -32603, 'Internal error');
    });
});
http.listen(Number(flags.port), '127.0.0.1', () => {
    console.log(`listening http://127.0.0.1:${http.address().port}/mcp`);
});

async function answer(request, response) {
    let body;
    if (request.method === 'POST') {
        try {
            body = await json(request);
        } catch {
            return refuse(response, 400, -32700, 'Parse error');
        }
    }
    if (!(await isLegacyRequest(await toWebRequest(request, body), body))) return modern(request, response, body);
    const transport = await session(request, body);
    if (transport === undefined) return refuse(response, 404, -32001, 'Session not found');
    if (transport === null) return refuse(response, 400, -32000, 'Bad Request: a session is required');
    return transport.handleRequest(request, response, body);
}

/** The transport of the request's session, a new one for `initialize`; undefined: no such session, null: none was named. */
async function session(request, body) {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined) return sessions.get(id);
    if (!isInitializeRequest(body)) return null;
    const built = made('legacy');
    const transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: new Events(),
        onsessioninitialized: opened => {
            sessions.set(opened, transport);
            world.sessions.add(built);
        }
    });
    await built.server.connect(transport);
    built.server.server.onclose = () => {
        world.sessions.delete(built);
        if (transport.sessionId) sessions.delete(transport.sessionId);
    };
    return transport;
}

/** A server with a tool of both eras, and one of this era alone. The legacy era alone has a prompt and a resource. */
function apart(era) {
    const server = new McpServer({ name: 'apart', version: '1.0.0' });
    for (const name of ['both', `only_${era}`]) {
        const text = `${name} in the ${era} era`;
        server.registerTool(name, { description: 'Tells the era.' }, async () => ({ content: [{ type: 'text', text }] }));
    }
    if (era === 'legacy') {
        const [name, text] = ['only_legacy', 'only_legacy in the legacy era'];
        server.registerPrompt(name, { description: 'Tells the era.' }, async () => ({
            messages: [{ role: 'user', content: { type: 'text', text } }]
        }));
        server.registerResource(name, 'test://only-legacy', { mimeType: 'text/plain' }, async url => ({
            contents: [{ uri: url.href, mimeType: 'text/plain', text }]
        }));
    }
    return { server, watched: new Set() };
}

function refuse(response, status, code, message) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
}
