"""The gateway as an MCP server: tools over the service layer, served by the Python SDK. Imported only where it is needed: the SDK is large."""
