// Package client is Placet for Go. Today it holds no code of its own: the stubs are placet.dev/api/placet/v1.
package client
