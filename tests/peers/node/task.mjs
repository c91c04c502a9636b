// A call that becomes a task, by the official package for tasks on the client of the TypeScript SDK 2.x, which has none of its own.

import {
    createApplicationInputHandler,
    createTaskSessionFromClient,
    resultFromTaskOutcome,
    toolDeclarationFromMcpTool
} from '@modelcontextprotocol/ext-tasks/client';

import { ASKED, answers } from './driver.mjs';

const MODERN = '2026-07-28';

/** The member of `params` that `Mcp-Name` repeats. */
const NAMED_BY = { 'tools/call': 'name', 'tasks/get': 'taskId', 'tasks/update': 'taskId', 'tasks/cancel': 'taskId' };

/** Calls a tool as a task, tells its states, and gives its result. */
export async function callAsTask(client, url, { name, args, onStatus }) {
    const { tools } = await client.listTools();
    const declarations = new Map(tools.map(tool => [tool.name, toolDeclarationFromMcpTool(tool)]));
    const framing = { protocolVersion: MODERN, clientInfo: { name: 'driver-v2', version: '1.0.0' }, clientCapabilities: ASKED };
    const session = createTaskSessionFromClient(client, {
        endpointId: url,
        tools: { currentTool: tool => declarations.get(tool) },
        onInputRequest: createApplicationInputHandler({
            elicitation: answers.elicit,
            sampling: answers.sample,
            roots: answers.roots
        }),
        ...(client.getProtocolEra() === 'modern' && { rawDispatch: dispatch(url), v2RequestFraming: framing })
    });
    try {
        const execution = await session.callTool(name, args, { task: { preference: 'require' } });
        const onEvent = ({ task }) => task && onStatus(task.status);
        const { outcome } = await execution.settle({ onEvent });
        return resultFromTaskOutcome(outcome);
    } finally {
        await session.close();
    }
}

/** Posts what is of tasks as it is: the SDK's own client would not let such results through. */
function dispatch(url) {
    let last = 0;
    return async request => {
        const id = `task-${++last}`;
        const named = request.params[NAMED_BY[request.method]];
        const response = await fetch(url, {
            method: 'POST',
            headers: {
                'content-type': 'application/json',
                accept: 'application/json, text/event-stream',
                'mcp-protocol-version': MODERN,
                'mcp-method': request.method,
                ...(named !== undefined && { 'mcp-name': named })
            },
            body: JSON.stringify({ jsonrpc: '2.0', id, ...request })
        });
        const message = answerIn(await response.text(), response.headers.get('content-type'), id);
        return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
    };
}

/** The message with this id in a body of JSON or of events. */
function answerIn(body, type, id) {
    if (!type.startsWith('text/event-stream')) return JSON.parse(body);
    const data = body.split(/\r?\n/).filter(line => line.startsWith('data:'));
    return data.map(line => JSON.parse(line.slice('data:'.length) || 'null')).find(message => message?.id === id);
}
