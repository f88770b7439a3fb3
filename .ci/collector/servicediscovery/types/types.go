// Package types has the types of the client that the load balancing exporter names.
package types

type HealthStatusFilter string

const HealthStatusFilterHealthy HealthStatusFilter = "HEALTHY"

type HttpInstanceSummary struct {
	Attributes map[string]string
}
