//! The dashboard in a real browser, over a running demo.
//!
//! # Layout
//! - [`chromium`]: the browser, [`tab`]: a page in it
//! - [`stage`]: a demo, and where its dashboard is
//! - [`duty`]: somebody on duty sees numbers move, follows a payment, pauses a rail, and decides about a dead letter
//! - [`door`]: who is let in, and who gets by without a mouse
//! - [`gallery`]: every page on every screen, by day and by night; takes the pictures of docs/console/

mod chromium;
mod door;
mod duty;
mod gallery;
mod stage;
mod tab;
