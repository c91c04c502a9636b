// For servers that have their port written into them: whatever port they want to listen on, they get the one in `PORT`.
//
//   PORT=N node --import ./ported.mjs SERVER

import { Server } from 'node:net';

const listen = Server.prototype.listen;
Server.prototype.listen = function (wanted, ...rest) {
    const told = typeof wanted === 'number' ? Number(process.env.PORT) : wanted;
    return listen.call(this, told, ...rest);
};
