// A server with dynamic toolsets, as people write one with the TypeScript SDK 1.x: a tool adds other tools, and a resource, to the
// list of its own session alone. A client with roots gets a tool for each of them, as soon as it listens.
//
// node toolsets.mjs [--transport stdio|http] [--port N] [--silent]   (port 0 takes a free one)
// Over HTTP it prints `listening <url>` once it serves. With `--silent` it has no standing stream (405).

import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { SubscribeRequestSchema, UnsubscribeRequestSchema, isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';
import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import * as z from 'zod';

const { values: flags } = parseArgs({
    options: {
        transport: { type: 'string', default: 'stdio' },
        port: { type: 'string', default: '0' },
        silent: { type: 'boolean', default: false }
    }
});

const text = value => ({ content: [{ type: 'text', text: value }] });

function build() {
    const server = new McpServer(
        { name: 'toolsets', version: '1.0.0' },
        { capabilities: { tools: { listChanged: true }, resources: { listChanged: true, subscribe: true } } }
    );
    const subscribed = new Set();
    server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
        subscribed.add(params.uri);
        return {};
    });
    server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
        subscribed.delete(params.uri);
        return {};
    });
    const added = new Map();
    const basic = server.registerTool('basic', { description: 'Always there, at first' }, async () => text('basic'));
    server.registerResource('readme', 'note://readme', {}, async uri => ({ contents: [{ uri: uri.href, text: 'read me' }] }));
    server.registerTool(
        'enable',
        { description: 'Adds a tool and a note of this name', inputSchema: { name: z.string() } },
        async ({ name }) => {
            added.set(
                name,
                server.registerTool(
                    name,
                    { description: `The tool ${name}`, inputSchema: { count: z.number().default(1) } },
                    async ({ count }) => {
                        const uri = `note://${name}`;
                        if (subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
                        return text(`${name} ${count}`);
                    }
                )
            );
            server.registerResource(name, `note://${name}`, {}, async uri => ({
                contents: [{ uri: uri.href, text: `of ${name}` }]
            }));
            return text(`${name} is there`);
        }
    );
    server.registerTool('disable', { description: 'Takes `basic` away' }, async () => {
        basic.disable();
        return text('basic is gone');
    });
    return server;
}

/** Adds a tool for each root of the client. */
async function addRoots(server) {
    if (!server.server.getClientCapabilities()?.roots) return;
    // Whoever declares roots may refuse to name them.
    const { roots } = await server.server.listRoots().catch(() => ({ roots: [] }));
    for (const { name } of roots) server.registerTool(`in_${name}`, { description: `Works in ${name}` }, async () => text(name));
}

/** @type {Map<string, { transport: StreamableHTTPServerTransport, server: McpServer }>} */
const sessions = new Map();

function overHttp() {
    const app = createMcpExpressApp();
    app.all('/mcp', async (request, response) => {
        if (flags.silent && request.method === 'GET') return response.status(405).end();
        const id = request.headers['mcp-session-id'];
        if (id !== undefined && sessions.has(id)) {
            const { transport, server } = sessions.get(id);
            // A stream is handled when it ends. Shortly after its begin the client can be asked on it, and has its first list.
            if (request.method === 'GET') setTimeout(addRoots, 1500, server);
            await transport.handleRequest(request, response, request.body);
        } else if (id === undefined && request.method === 'POST' && isInitializeRequest(request.body)) {
            await open().then(transport => transport.handleRequest(request, response, request.body));
        } else {
            const error = { code: -32001, message: 'Session not found' };
            response.status(404).json({ jsonrpc: '2.0', error, id: null });
        }
    });
    const http = app.listen(Number(flags.port), '127.0.0.1', () => {
        console.log(`listening http://127.0.0.1:${http.address().port}/mcp`);
    });
}

async function open() {
    const server = build();
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => sessions.set(id, { transport, server })
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await server.connect(transport);
    return transport;
}

if (flags.transport === 'stdio') await build().connect(new StdioServerTransport());
else overHttp();
