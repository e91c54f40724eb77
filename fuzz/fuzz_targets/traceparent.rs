//! The field `traceparent`: any bytes are a context, which its own field says again, or none.

#![no_main]

use levada_observe::otel::TraceContext;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(context) = TraceContext::parse(bytes) {
        assert_eq!(TraceContext::parse(context.field().as_bytes()), Some(context));
    }
});
