//! The shop: a stock and a list of orders in plain files, with nothing to protect them but the lock.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// One hair dryer sold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) buyer: u32,
    pub(crate) server: u32,
    /// The fencing token it was sold under; zero without a lock.
    pub(crate) token: u64,
    /// Nanoseconds on the clock that all processes share.
    pub(crate) asked_at_ns: u64,
    pub(crate) served_at_ns: u64,
}

/// Where stock and orders lie.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    folder: PathBuf,
}

impl Shop {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    pub(crate) fn stock(&self) -> io::Result<u32> {
        let text = std::fs::read_to_string(self.folder.join("stock"))?;
        // Without a lock the file may be read while somebody writes it: then it is empty for a moment.
        Ok(text.trim().parse().unwrap_or(0))
    }

    pub(crate) fn set_stock(&self, stock: u32) -> io::Result<()> {
        std::fs::write(self.folder.join("stock"), stock.to_string())
    }

    pub(crate) fn write_order(&self, order: &Order) -> io::Result<()> {
        let mut orders = OpenOptions::new().create(true).append(true).open(self.folder.join("orders"))?;
        orders.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes())
    }

    /// The orders as they were written, one after another.
    pub(crate) fn orders(&self) -> io::Result<Vec<Order>> {
        let file = match File::open(self.folder.join("orders")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        BufReader::new(file).lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    }
}
