//! The same locks without async.
