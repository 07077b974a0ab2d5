//! Tries the checker: on histories broken on purpose, on right ones, and against a slow oracle.

#[path = "checker/agreement.rs"]
mod agreement;
#[path = "checker/broken.rs"]
mod broken;
#[path = "checker/oracle.rs"]
mod oracle;
#[path = "checker/recording.rs"]
mod recording;
#[path = "checker/right.rs"]
mod right;
#[path = "checker/script.rs"]
mod script;
