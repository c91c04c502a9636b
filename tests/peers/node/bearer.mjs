// Gives a program that knows nothing of OAuth a token: node --import ./bearer.mjs PROGRAM ...
//
// BEARER_ISSUER is a running idp.mjs, BEARER_RESOURCE what the token is for; every request to the resource's origin that
// has no `Authorization` then carries it, sent by `fetch`, by undici, or by `http`.

import http from 'node:http';
import { env } from 'node:process';

import { getGlobalDispatcher, setGlobalDispatcher } from 'undici';

const { origin, hostname } = new URL(env.BEARER_RESOURCE);
const bearer = `Bearer ${await token()}`;

setGlobalDispatcher(
    getGlobalDispatcher().compose(dispatch => (options, handler) => {
        if (`${options.origin}` !== origin) return dispatch(options, handler);
        return dispatch({ ...options, headers: withBearer(options.headers) }, handler);
    })
);

const plainRequest = http.request;
http.request = (...given) => {
    const request = plainRequest(...given);
    // Here the port is not to be seen; what else is on this host gets no requests from such a program.
    if (request.host === hostname && !request.headersSent && !request.hasHeader('authorization')) {
        request.setHeader('authorization', bearer);
    }
    return request;
};

async function token() {
    const form = { grant_type: 'client_credentials', resource: env.BEARER_RESOURCE, scope: 'mcp' };
    const answer = await fetch(`${env.BEARER_ISSUER}/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${btoa('machine:machine-secret')}` },
        body: new URLSearchParams(form)
    });
    return (await answer.json()).access_token;
}

/** undici takes headers as a list of names and values in turn, as pairs, or as an object. */
function withBearer(headers) {
    const flat = Array.isArray(headers) ? headers : [...(headers?.entries?.() ?? Object.entries(headers ?? {}))].flat();
    const names = flat.filter((_, nth) => nth % 2 === 0).map(name => `${name}`.toLowerCase());
    return names.includes('authorization') ? flat : [...flat, 'authorization', bearer];
}
