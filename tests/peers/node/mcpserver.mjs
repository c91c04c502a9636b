// A server as people write one with the TypeScript SDK 1.x: McpServer and zod schemas.
//
// node mcpserver.mjs [--transport stdio|http] [--port N]   (port 0 takes a free one)
// Over HTTP it prints `listening <url>` once it serves.

import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { McpError, isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';
import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import * as z from 'zod';

import { PNG } from './fixture/media.mjs';

const { values: flags } = parseArgs({
    options: {
        transport: { type: 'string', default: 'stdio' },
        port: { type: 'string', default: process.env.PORT ?? '0' }
    }
});

/** How many tools `add_tool` made; sessions that open later have them too. */
let added = 0;
/** @type {Set<McpServer>} */
const live = new Set();

const text = value => ({ type: 'text', text: value });

function build() {
    const server = new McpServer(
        { name: 'zoo', version: '1.0.0' },
        { instructions: 'Weighs animals and draws them.', capabilities: { logging: {} } }
    );
    animals(server);
    growth(server);
    census(server);
    for (let nth = 1; nth <= added; nth++) grow(server, nth);
    return server;
}

function animals(server) {
    server.registerTool(
        'weigh',
        {
            title: 'Weigh an animal',
            description: 'The weight of an animal, structured',
            inputSchema: { animal: z.enum(['cat', 'dog', 'elephant']), unit: z.enum(['kg', 'lb']).default('kg') },
            outputSchema: { animal: z.string(), weight: z.number(), unit: z.string() },
            annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false }
        },
        async ({ animal, unit }) => {
            const kilos = { cat: 4.5, dog: 22, elephant: 5400 }[animal];
            const structuredContent = { animal, weight: unit === 'kg' ? kilos : kilos * 2.2046, unit };
            return { content: [text(JSON.stringify(structuredContent))], structuredContent };
        }
    );
    server.registerTool(
        'draw',
        {
            description: 'A picture of an animal',
            inputSchema: { animal: z.string() },
            annotations: { title: 'Draw an animal', readOnlyHint: true },
            _meta: { 'example.org/artist': 'nobody' }
        },
        async ({ animal }) => ({
            content: [
                { ...text(`A ${animal}`), annotations: { audience: ['user'], priority: 0.5 } },
                { type: 'image', data: PNG, mimeType: 'image/png' },
                { type: 'resource_link', uri: `zoo://animals/${animal}`, name: animal, mimeType: 'text/plain' }
            ],
            _meta: { 'example.org/brush': 'thin' }
        })
    );
    server.registerTool('escape', { description: 'Throws', annotations: { destructiveHint: true } }, async () => {
        throw new Error('the lion escaped');
    });
}

function growth(server) {
    server.registerTool('add_tool', { description: 'Adds a tool: the list changes' }, async () => {
        added += 1;
        for (const other of live) grow(other, added);
        return { content: [text(`grown_${added} was added`)] };
    });
}

function grow(server, nth) {
    server.registerTool(`grown_${nth}`, { description: `The tool that was added as number ${nth}` }, async () => ({
        content: [text(`${nth}`)]
    }));
}

/** A method of the server's own, which no revision of the protocol knows. */
function census(server) {
    const params = z.object({ keepers: z.boolean().default(false), area: z.string().regex(/^[a-z]+$/) });
    const schema = z.object({ method: z.literal('zoo/census'), params });
    let counts = 0;
    server.server.setRequestHandler(schema, async ({ params: { keepers, area } }, { sessionId }) => {
        if (area === 'cellar') throw new McpError(4711, 'nobody counts there', { area });
        counts += 1;
        return { area, animals: keepers ? 13 : 12, weight: 1e2, counts, inSession: sessionId !== undefined };
    });
}

async function overStdio() {
    const server = build();
    live.add(server);
    await server.connect(new StdioServerTransport());
}

function overHttp() {
    /** @type {Map<string, StreamableHTTPServerTransport>} */
    const sessions = new Map();
    const app = createMcpExpressApp();
    app.all('/mcp', async (request, response) => {
        const id = request.headers['mcp-session-id'];
        if (id !== undefined && sessions.has(id)) {
            await sessions.get(id).handleRequest(request, response, request.body);
        } else if (id === undefined && request.method === 'POST' && isInitializeRequest(request.body)) {
            await open(sessions).then(transport => transport.handleRequest(request, response, request.body));
        } else {
            // As most servers answer a lost session: 400, not the 404 that the protocol asks for.
            const error = { code: -32000, message: 'Bad Request: No valid session ID provided' };
            response.status(400).json({ jsonrpc: '2.0', error, id: null });
        }
    });
    const http = app.listen(Number(flags.port), '127.0.0.1', () => {
        console.log(`listening http://127.0.0.1:${http.address().port}/mcp`);
    });
}

async function open(sessions) {
    const server = build();
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => {
            sessions.set(id, transport);
            live.add(server);
        }
    });
    transport.onclose = () => {
        sessions.delete(transport.sessionId);
        live.delete(server);
    };
    await server.connect(transport);
    return transport;
}

if (flags.transport === 'stdio') await overStdio();
else overHttp();
