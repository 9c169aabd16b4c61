// Package ductor opens connections to Ductor, with the credentials, load balancing and retries that every caller wants.
package ductor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

// Dial opens a connection to DUCTOR_TARGET (host:port, or any name that gRPC resolves) in the name of DUCTOR_API_KEY and DUCTOR_TENANT_ID; over TLS
// where DUCTOR_TARGET_CA_FILE names the authority to trust. It connects when it is first used, and again by itself for ever.
func Dial() (*grpc.ClientConn, error) {
	target := os.Getenv("DUCTOR_TARGET")
	if target == "" {
		return nil, errors.New("DUCTOR_TARGET is not set: host:port of the gRPC port")
	}
	transport := insecure.NewCredentials()
	if file := os.Getenv("DUCTOR_TARGET_CA_FILE"); file != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(file, ""); err != nil {
			return nil, err
		}
	}
	caller := caller{}
	if key := os.Getenv("DUCTOR_API_KEY"); key != "" {
		caller["authorization"] = "Bearer " + key
	}
	if tenant := os.Getenv("DUCTOR_TENANT_ID"); tenant != "" {
		caller["x-tenant-id"] = tenant
	}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(caller),
		grpc.WithDefaultServiceConfig(serviceConfig()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
}

// caller is the metadata of every call: who calls.
type caller map[string]string

func (c caller) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return c, nil
}

// RequireTransportSecurity could refuse to send a key in the clear. Off the machine use TLS.
func (caller) RequireTransportSecurity() bool { return false }

// serviceConfig uses the addresses behind a name in turn, and repeats a call to a service that is unavailable where the contract says that it may be
// repeated. Any other call is repeated only by who knows that it may: a trigger with an idempotency key, a control with a request id.
func serviceConfig() string {
	type object = map[string]any
	var repeatable []object
	for _, file := range []protoreflect.FileDescriptor{
		workflowv1.File_ductor_workflow_v1_admin_service_proto,
		workflowv1.File_ductor_workflow_v1_schedule_service_proto,
		workflowv1.File_ductor_workflow_v1_task_service_proto,
		workflowv1.File_ductor_workflow_v1_workflow_definition_service_proto,
		workflowv1.File_ductor_workflow_v1_workflow_run_control_service_proto,
		workflowv1.File_ductor_workflow_v1_workflow_service_proto,
		workflowv1.File_ductor_workflow_v1_workflow_signal_service_proto,
		workflowv1.File_ductor_workflow_v1_workflow_trigger_service_proto,
	} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			options, _ := method.Options().(*descriptorpb.MethodOptions)
			if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
				repeatable = append(repeatable, object{"service": service.FullName(), "method": method.Name()})
			}
		}
	}
	config, err := json.Marshal(object{
		"loadBalancingConfig": []object{{"round_robin": object{}}},
		"methodConfig": []object{{"name": repeatable, "retryPolicy": object{
			"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
			"retryableStatusCodes": []string{"UNAVAILABLE", "CANCELLED"}, // the latter from a server that stops before it took the call up
		}}},
	})
	if err != nil {
		panic(err) // nothing in it that JSON cannot carry
	}
	return string(config)
}
