import evener from './lib/index.js';

export const {open, version, describePasses, EvenerError, Runtime, Device, Tensor, Value, Model, Session, Request, State, Quantizer, Trainer, OperatorNode, constants} = evener;
export default evener;
