// Package servicediscovery stands in for the client of AWS Cloud Map, which no configuration of ours resolves by.
package servicediscovery

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicediscovery/types"
)

type Client struct{}

type Options struct{}

type DiscoverInstancesInput struct {
	NamespaceName      *string
	ServiceName        *string
	OwnerAccount       *string
	HealthStatus       types.HealthStatusFilter
	MaxResults         *int32
	OptionalParameters map[string]string
	QueryParameters    map[string]string
}

type DiscoverInstancesOutput struct {
	Instances []types.HttpInstanceSummary
}

func NewFromConfig(aws.Config, ...func(*Options)) *Client {
	return &Client{}
}

func (*Client) DiscoverInstances(
	context.Context, *DiscoverInstancesInput, ...func(*Options),
) (*DiscoverInstancesOutput, error) {
	return nil, errors.New("this Collector is built without AWS Cloud Map")
}
