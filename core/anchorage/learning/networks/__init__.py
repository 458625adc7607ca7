"""Networks that pieces build."""
