// For modules (index.mjs), which have a default export beside the names.
import * as evener from './index.js';

export * from './index.js';
export default evener;
