'use strict';
const {open, version, describePasses} = require('./native.js');
const {EvenerError} = require('./error.js');
const {Runtime} = require('./runtime.js');
const {Device} = require('./device.js');
const {Tensor} = require('./tensor.js');
const {Value} = require('./value.js');
const {Model} = require('./model.js');
const {Session} = require('./session.js');
const {Request} = require('./request.js');
const {State} = require('./state.js');
const {Quantizer} = require('./quantizer.js');
const {Trainer} = require('./trainer.js');
const {OperatorNode} = require('./operator.js');
const {constants} = require('./raw.js');

module.exports = {open, version, describePasses, EvenerError, Runtime, Device, Tensor, Value, Model, Session, Request, State, Quantizer, Trainer, OperatorNode, constants};
